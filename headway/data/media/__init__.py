"""What datasets of images and of sounds share: files of folders and tables, values of rows, stores"""
